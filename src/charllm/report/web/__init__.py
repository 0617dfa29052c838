"""Pages as HTML: data and front end in one file that needs no network."""

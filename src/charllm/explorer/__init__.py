"""The explorer: a server that answers requests in a browser, shows stored runs and watches measurements."""

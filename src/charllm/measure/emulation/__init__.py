"""One real GPU in the place of one rank of a big job."""

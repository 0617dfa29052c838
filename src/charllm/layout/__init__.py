"""Where ranks sit: groups as slices of one grid, ranks on GPUs, hops between them and who shares their links."""

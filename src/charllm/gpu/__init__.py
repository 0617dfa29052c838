"""One GPU: seconds and joules of its kernels at a clock, board power, what holds its clock, heat, and its sensor."""

"""Where the joules and the lost clock of a measured run went: a trace of some steps joined with its readings."""

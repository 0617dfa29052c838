"""Programs' own parsers, each run by an interpreter that has the program: cases as JSON in, errors as JSON out."""

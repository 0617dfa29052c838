"""Results for people: tables and figures. Nothing here computes physics."""

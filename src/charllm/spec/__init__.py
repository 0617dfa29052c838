"""What the user asked for: frozen, checked settings, and readers for foreign formats."""

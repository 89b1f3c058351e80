"""Files, tables and arrays → Dataset."""

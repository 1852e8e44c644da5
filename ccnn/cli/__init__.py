"""The commands: arguments and messages only, one module each."""

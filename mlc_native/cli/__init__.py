"""The command line: ``mlc-native``."""

"""Helpers that are no part of serving itself."""

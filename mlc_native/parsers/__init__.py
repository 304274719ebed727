"""Reads answers: reasoning, content and calls, in the formats of many families of models."""

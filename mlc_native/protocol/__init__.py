"""The words of the interface: requests, responses and settings as pydantic models."""

"""The bugs that planted_bugs.py plants, by what they are in."""

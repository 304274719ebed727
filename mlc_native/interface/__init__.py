"""Programs on top of an engine, by MLC-LLM's names."""

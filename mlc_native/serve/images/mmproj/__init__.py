"""Vision towers of GGUF models: files of the architecture "clip", as llama.cpp has them.

The file says the sizes of the tower and has its tensors. From these, the tower is made as a module
of transformers, which then runs as that of a Hugging Face folder. Nothing here imports torch or
transformers before an image arrives.
"""

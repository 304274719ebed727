"""The parts of tools/train_demo_model.py: the text, the tokenizer, the training."""

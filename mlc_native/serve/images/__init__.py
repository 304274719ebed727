"""Images in chats: their parts in messages, the model's vision tower, and the rows it makes.

Nothing here imports torch, transformers or Pillow before an image arrives.
"""

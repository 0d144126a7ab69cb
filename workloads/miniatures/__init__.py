"""Small retellings of well-known public training scripts, for a CPU and without a network; each prints its final loss.

`char_gpt` is in the manner of nanoGPT's train.py, `image_classifier` of the PyTorch examples' imagenet/main.py,
`text_classifier` of Hugging Face's run_glue_no_trainer.py. The code is our own, the habits are theirs, the slow ones
too: each module says which, and the flag that mends each. Data are made up from `--seed`.
"""

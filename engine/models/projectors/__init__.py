"""Projectors in GGUF files (llama.cpp's mmproj): what they say, as transformers' configuration of the same model.

A file holds the weights of a tower and a few numbers; what a family has beside them stands here, one file a family.
Sources: https://github.com/ggml-org/llama.cpp, tools/mtmd and conversion; the configurations of transformers.
"""

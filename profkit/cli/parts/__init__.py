"""Parts of single commands that have files of their own, one part a file; each names its command.

In and out: as of the command, which alone imports it. Begin with the command's file beside this folder.
"""

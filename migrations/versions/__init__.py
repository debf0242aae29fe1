"""One file per step, named `NNNN_what.py`. A step that was released is never edited."""

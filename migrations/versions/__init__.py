"""Keep one file per schema step, named `NNNN_what.py`. A step that was released is never edited."""

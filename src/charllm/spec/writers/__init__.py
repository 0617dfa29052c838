"""Writers of foreign formats: a run as the arguments or the file that starts it in another program.

Each writes what its format has a setting for; `catalog/export.py` reads the text back and names what got lost.
"""

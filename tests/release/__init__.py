"""`make release-check`: the wheel and the source package as a user installs them, on each Python that is to be had.

`artifacts.py` builds and looks into them, `environments.py` installs them into folders of their own, `smoke.py` tries
what is installed, `extras.py` each optional extra alone, `starts.py` counts what a start imports.
"""

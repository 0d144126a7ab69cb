"""One change of `profkit try` inside a run: it is made when torch is imported, and the steps are timed unprofiled.

In: `Options.trial`. Out: `<pid>.tried` in the folder of the run. Begin with `trier.Trier`; `changes` has the changes.
"""

"""The report's sections: each module makes one from what a folder holds, or says that it was not measured and how.

Above it: `building`, which puts them in order. Below it: figures, rollouts, plots and words.
"""

"""One network and one workload under every scheme that can carry it: which should one run?

`settings` reads what to compare, `rows` lists what is compared, `runs` performs one run and
takes its measures, `verdict` says from the measures which row is best for what.
"""

"""Does it matter? Where a transport or a shape gains more than 5% end to end, where none does, and where gRPC loses.

Above it: the report, and people by `python -m turnwire.bench.map FOLDER`. Below it: result files of rollouts. Four
dimensions cannot be measured whole, so `observed` takes from the files what turns cost, `model` fits and predicts,
`checks` holds the prediction against rollouts that were not fitted, `cells` judges, `picture` and `words` show it.
"""

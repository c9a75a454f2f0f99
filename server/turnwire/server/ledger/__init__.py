"""The usage ledger: what responses cost, recorded before anybody hears of them, and budgets that end new ones."""

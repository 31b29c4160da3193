"""Which ensemble for my data and my budget: every method trained and measured, gathered in one document."""

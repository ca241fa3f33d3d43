"""First guesses of people who know other packages, as code that must run here."""

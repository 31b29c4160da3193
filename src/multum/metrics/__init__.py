"""What an ensemble's uncertainty is worth: quality, calibration, OOD data, diversity, statistics, cost and speed."""

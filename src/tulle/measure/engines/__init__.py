"""Engines that run the SQL of a measurement: DuckDB, Spark, or a script to take away."""

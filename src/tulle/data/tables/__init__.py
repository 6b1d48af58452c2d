"""One reader of tables: files and tables in memory, their kinds of values, their refusals."""

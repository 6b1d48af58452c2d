"""Prepared datasets: folders of arrays that training reads."""

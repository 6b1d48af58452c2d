"""Exact bills for choices that are private: prices, reserve, money and incentives."""

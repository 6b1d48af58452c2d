"""What another rule of selection would have been worth, from the decisions of this one."""

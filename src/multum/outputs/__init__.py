"""What `ens(x)` means: the prediction that members make together, and the loss that trains them."""

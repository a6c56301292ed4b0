"""What value models of recorded frames learn, and how their estimates become advantages. Arrays in, arrays out."""

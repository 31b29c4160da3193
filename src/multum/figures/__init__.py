"""What every picture and table is made of: colours, panels, scales, labels, SVG, and how a number is written."""

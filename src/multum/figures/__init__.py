"""Parts of every figure and table: colours, panels, scales, circles with labels, SVG, tables, number formats."""

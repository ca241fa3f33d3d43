// XNOR-Net: scale = mean |x|, codes -1 and 1; zero counts as positive.
fn scale_of(g: Group) -> Scale {
    var mean = Num(false, 0, 0u);
    if (g.peak != 0u) { mean = short(double(over(double(g.total), number_of_integer(g.size)))); }
    return Scale(stored(mean), 0u, 0u, 0u);
}

fn held(bits: u32, s: Scale) -> u32 { return s.scale | select(0u, SIGN, bits > SIGN); }

// A mask whose leading size is one, and whose rows may be none.
func.func @main(%rows: index) -> vector<4xi1> {
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %mask = vector.create_mask %c1, %rows, %c4 : vector<1x1x4xi1>
  %row = vector.shape_cast %mask : vector<1x1x4xi1> to vector<4xi1>
  return %row : vector<4xi1>
}

/* One rank with one row: the output equals the value. */
#include <heed/heed_mpi.h>
#include <stdio.h>

int main(int argc, char** argv) {
  const int64_t shape[] = {1, 2};
  float x[] = {1, 2}, y[] = {0, 0};
  heed_sharding* rows = NULL;
  heed_tensor input, output;
  heed_attention_outputs outputs;
  heed_mpi_layout layout;
  heed_status status;
  MPI_Init(&argc, &argv);
  heed_tensor_init(&input, x, HEED_F32, 2, shape);
  heed_tensor_init(&output, y, HEED_F32, 2, shape);
  heed_attention_outputs_init(&outputs);
  outputs.output = &output;
  heed_sharding_contiguous(1, 1, &rows);
  heed_mpi_layout_init(&layout);
  layout.query = layout.key = rows;
  status = heed_mpi_attention(MPI_COMM_SELF, &input, &input, &input, &layout, NULL, &outputs, NULL, NULL);
  printf("over ranks: %g %g %s\n", (double)y[0], (double)y[1], heed_last_error());
  heed_sharding_free(rows);
  MPI_Finalize();
  return status == HEED_OK && y[0] == 1 && y[1] == 2 ? 0 : 1;
}

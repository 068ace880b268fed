// heed_model: a model that comes with heed is known by its name.
#include <heed/model.hpp>

int main() {
  const heed::Model model = heed::load_model("induction");
  return model.info().layers == 2 ? 0 : 1;
}

// nanobind refuses wrong arguments with a list of signatures. The linker leads its calls of PyErr_SetString
// here (python/CMakeLists.txt), and heed._refusal makes one sentence of the list.
#include <Python.h>

#include <cstring>

extern "C" {

void __real_PyErr_SetString(PyObject* type, const char* message);

void __wrap_PyErr_SetString(PyObject* type, const char* message) {
  PyErr_Clear();
  PyObject* sentence = nullptr;
  if (type == PyExc_TypeError && std::strstr(message, "(): incompatible function arguments.") != nullptr) {
    PyObject* module = PyImport_ImportModule("heed._refusal");
    if (module != nullptr) sentence = PyObject_CallMethod(module, "sentence", "s", message);
    Py_XDECREF(module);
  }
  if (sentence == nullptr) {
    PyErr_Clear();
    __real_PyErr_SetString(type, message);
  } else {
    PyErr_SetObject(type, sentence);
    Py_DECREF(sentence);
  }
}
}

# cmake -DFILES=a;b -DFUNCTION=page_files -DOUTPUT=x.cpp -P EmbedFiles.cmake writes a C++ source. Its function returns
# the files as string literals (see src/page/files.hpp).
set(source "#include \"page/files.hpp\"\n\nnamespace heed::detail {\nnamespace {\n\nconstexpr PageFile kFiles[] = {\n")
foreach(path IN LISTS FILES)
  file(READ "${path}" text)
  get_filename_component(name "${path}" NAME)
  string(APPEND source "{\"${name}\", R\"~heed~(${text})~heed~\"},\n")
endforeach()
string(APPEND source "};\n\n}  // namespace\n\nstd::span<const PageFile> ${FUNCTION}() noexcept { return kFiles; }\n\n}  // namespace heed::detail\n")
file(WRITE "${OUTPUT}" "${source}")

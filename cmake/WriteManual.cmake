# cmake -DHEED=COMMAND -DFOLDER=FOLDER -P WriteManual.cmake: the manual pages and completion scripts that the command
# prints, in FOLDER/man1,
# FOLDER/bash, FOLDER/zsh and FOLDER/fish.
file(REMOVE_RECURSE "${FOLDER}")
file(MAKE_DIRECTORY "${FOLDER}/man1")
execute_process(COMMAND "${HEED}" --help OUTPUT_VARIABLE help COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "\n  [a-z]+  " commands "${help}")
execute_process(COMMAND "${HEED}" --man heed OUTPUT_FILE "${FOLDER}/man1/heed.1" COMMAND_ERROR_IS_FATAL ANY)
foreach(command IN LISTS commands)
  string(STRIP "${command}" command)
  execute_process(COMMAND "${HEED}" --man "${command}" OUTPUT_FILE "${FOLDER}/man1/heed-${command}.1" COMMAND_ERROR_IS_FATAL ANY)
endforeach()
foreach(shell_file IN ITEMS bash:heed zsh:_heed fish:heed.fish)
  string(REPLACE ":" ";" shell_file "${shell_file}")
  list(POP_FRONT shell_file shell)
  file(MAKE_DIRECTORY "${FOLDER}/${shell}")
  execute_process(COMMAND "${HEED}" --completion "${shell}" OUTPUT_FILE "${FOLDER}/${shell}/${shell_file}" COMMAND_ERROR_IS_FATAL ANY)
endforeach()
if(GZIP)  # Debian's packages hold compressed pages
  file(GLOB pages "${FOLDER}/man1/*.1")
  execute_process(COMMAND "${GZIP}" -9n ${pages} COMMAND_ERROR_IS_FATAL ANY)
endif()

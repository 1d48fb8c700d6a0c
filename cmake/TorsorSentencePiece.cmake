# Finds the library of SentencePiece and defines Torsor::sentencepiece, where it is there. Used by the build and,
# installed, by find_package(torsor).
find_path(TORSOR_SENTENCEPIECE_INCLUDE sentencepiece_processor.h DOC "Folder of sentencepiece_processor.h")
find_library(TORSOR_SENTENCEPIECE_LIBRARY sentencepiece DOC "The library of SentencePiece")
mark_as_advanced(TORSOR_SENTENCEPIECE_INCLUDE TORSOR_SENTENCEPIECE_LIBRARY)
if(TORSOR_SENTENCEPIECE_INCLUDE AND TORSOR_SENTENCEPIECE_LIBRARY AND NOT TARGET Torsor::sentencepiece)
  add_library(Torsor::sentencepiece UNKNOWN IMPORTED)
  set_target_properties(Torsor::sentencepiece PROPERTIES
    IMPORTED_LOCATION "${TORSOR_SENTENCEPIECE_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${TORSOR_SENTENCEPIECE_INCLUDE}")
endif()
